"""The scheduler: decides which mail is delivered next. Pure, without clock or I/O (decision 0003)."""
