"""How a worker's `perform` is called, and what becomes of its errors."""
