"""What ops of message passing share: see README.md in this folder."""
