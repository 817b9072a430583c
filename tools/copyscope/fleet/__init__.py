"""Run one command on many hosts with ansible, and query the records that the hosts return."""
