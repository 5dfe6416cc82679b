"""Real servers, started by the tests on free ports with data folders of their own, and stopped by their process id."""
