"""The ledger: which messages a client got its 250 for, and whether each of them arrived, once, byte for byte.

Shares no code with the mail path; the digest is the lab's.
"""
