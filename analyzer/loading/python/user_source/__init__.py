"""What the text of a user's file tells without running it: where it trains, what it builds and with what."""
