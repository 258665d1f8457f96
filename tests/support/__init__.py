"""What the tests share: a clock that stands still until it is moved, and ways to wait for facts."""
