"""The page ``/ui``: one file of our own, which asks the server's routes from a browser."""

import base64
import hashlib
from importlib.resources import files

from fastapi import APIRouter
from starlette.responses import HTMLResponse


def page_routes() -> APIRouter:
    """The one route; a browser runs no script on the page but its own, and sends nothing elsewhere."""
    router = APIRouter()
    page = files("longform.serving").joinpath("page.html").read_text(encoding="utf-8")
    script = page.split("<script>", 1)[1].split("</script>", 1)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )

    @router.get("/ui", include_in_schema=False)
    async def page_in_browser() -> HTMLResponse:
        return HTMLResponse(page, headers={"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"})

    return router
