"""The queue's own protocol in Redis: one operation a script. With `admin` it alone knows a key or a script."""
