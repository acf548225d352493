"""The call of a worker's `perform`, what a job knows of itself meanwhile, and what becomes of its errors."""
