"""SPF, DKIM, ARC and DMARC of mail that comes in: evaluated, and written as an Authentication-Results field."""
