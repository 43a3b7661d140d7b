"""The commands that other mail servers have, for scripts and operators that know them: sendmail, mailq and others."""
