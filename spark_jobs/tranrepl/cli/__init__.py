"""The shell: a module for each group of verbs. Exit status 0 done, 1 failed with one clear message, 2 usage;
of status, also where something is wrong."""
