"""Every setting: its default, its choices, its help, and the keywords of `seqloom.train`."""
