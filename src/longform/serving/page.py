"""The page ``/ui``: one file of our own, which asks the server's routes from a browser; and speeches to try it on."""

import base64
import hashlib
from functools import cache
from importlib.resources import files

from fastapi import APIRouter
from starlette.responses import HTMLResponse

from longform.data.bundled import speeches
from longform.errors import DataError, MissingDependencyError
from longform.serving.errors import Refusal

EXAMPLES = 12  # speeches, evenly over the years


def page_routes() -> APIRouter:
    """The page and its examples; a browser runs no script on the page but its own, and sends nothing elsewhere."""
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

    # Reading them takes a moment: not in the event loop, but in a thread, where FastAPI runs what is not async.
    @router.get("/ui/examples", include_in_schema=False)
    def example_names() -> list[str]:
        return list(examples())

    @router.get("/ui/examples/{name}", include_in_schema=False)
    def example(name: str) -> dict[str, str]:
        if name not in examples():
            raise Refusal("not_found", "there is no example of this name")
        return {"text": examples()[name]}

    return router


@cache
def examples() -> dict[str, str]:
    """Speeches by name; none where the package that has them is not installed."""
    try:
        found = speeches()
    except (MissingDependencyError, DataError):
        return {}
    return {each.id: each.text for each in found[:: -(-len(found) // EXAMPLES)]}
