"""Kills and cuts at random moments: `python -m tests.chaos --kills 2000` (`make chaos`).

Four writers, a runner over a folder of files, upkeep, delivery and changes of definitions work on one project and are killed
(SIGKILL) or interrupted (SIGINT) again and again; connections to PostgreSQL are cut on their way. Writers note each write before
and after. At the end nothing that was acknowledged is missing, nothing is there twice, every listed file exists, every
file that exists is listed, every view is right, and nobody had to do anything by hand.
"""
