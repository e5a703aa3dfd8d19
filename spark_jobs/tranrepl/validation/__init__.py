"""Whether a Subscriber holds what the Publisher publishes, and correcting the rows where it does not."""
