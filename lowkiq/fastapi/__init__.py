"""
FastAPI and Starlette: a lifespan that ends Lowkiq with the site, and the web view behind the site's own dependencies.
Needs the extra `fastapi`.

A push needs nothing of this: `await OrderSync.aperform_async([…])`.
"""

from lowkiq.fastapi.views import guarded_view, lifespan, view_router

__all__ = ["guarded_view", "lifespan", "view_router"]
