"""Other systems that keep views: each is a script that runs in an environment of its own and knows nothing of runnel."""
