"""What the services say to each other. Every message carries its sender's epoch; older epochs are refused."""
