"""The interactive documentation: Swagger UI from files that are installed with the service, and its document."""

from pathlib import Path

import flask_swagger_ui
import orjson
from flask import Blueprint, Response, current_app, redirect, send_from_directory
from flask.typing import ResponseReturnValue

from app.api.auth import public
from app.api.errors import JSON

blueprint = Blueprint("docs", __name__)

DOCUMENT = "arauto_openapi"
_ASSETS = Path(flask_swagger_ui.__file__).parent / "dist"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Arauto API</title>
<link rel="stylesheet" href="/docs/assets/swagger-ui.css">
<link rel="icon" href="/docs/assets/favicon-32x32.png">
</head>
<body>
<div id="docs"></div>
<script src="/docs/assets/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
_START = """window.ui = SwaggerUIBundle({
  url: "/openapi.json", dom_id: "#docs", deepLinking: true, persistAuthorization: true, validatorUrl: null
});
"""
_POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'"


@blueprint.get("/")
@public
def index() -> ResponseReturnValue:
    """Lead a visitor to the documentation."""
    return redirect("/docs")


@blueprint.get("/docs")
@public
def page() -> Response:
    """Return the page; every asset comes from this host."""
    return Response(_PAGE, headers={"Content-Security-Policy": _POLICY}, mimetype="text/html")


@blueprint.get("/docs/start.js")
@public
def start() -> Response:
    """Return the script that opens the document."""
    return Response(_START, mimetype="text/javascript")


@blueprint.get("/docs/assets/<path:name>")
@public
def asset(name: str) -> Response:
    """Return one of Swagger UI's own files."""
    return send_from_directory(_ASSETS, name, max_age=86_400)


@blueprint.get("/openapi.json")
@public
def document() -> Response:
    """Return the OpenAPI document."""
    return Response(orjson.dumps(current_app.extensions[DOCUMENT]), mimetype=JSON)
