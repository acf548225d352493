"""The shop: orders, and an ERP that mirrors them."""
