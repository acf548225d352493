"""Doctor: examines Redis, queues, nodes and this machine, and says what to mend. It changes nothing."""
