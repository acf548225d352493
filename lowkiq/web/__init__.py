"""The web view: an ASGI application that shows what Lowkiq does, and acts when asked. Needs the extra `web`."""

from lowkiq.environment import NEEDED_BY_THE_VIEW

try:
    from lowkiq.web.application import create_app
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in NEEDED_BY_THE_VIEW:
        raise
    raise ModuleNotFoundError(
        f"the web view needs {error.name}, which comes with an extra: pip install 'lowkiq[web]'", name=error.name
    ) from error

__all__ = ["create_app"]
