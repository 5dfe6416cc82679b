"""Log sync between SQL databases: how fast their logs are decoded, beside other readers, and how far behind a target is."""
