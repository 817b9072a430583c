"""What is different where the traffic is that of a program which copyscope did not write. Pure."""
