"""The page at `/docs`: all endpoints, rendered from OpenAPI, with nothing fetched from elsewhere."""

import html
import json
import re
from typing import Any


def render(openapi: dict[str, Any]) -> str:
    """A page that lists every endpoint of an OpenAPI document with its body, its answer and its errors."""
    info, schemas = openapi["info"], openapi["components"]["schemas"]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        '<title>POINTER API</title><link rel="stylesheet" href="static/documentation.css"></head><body><main>',
        f"<h1>{_text(info['title'])} {_text(info['version'])}</h1><p>{_prose(info['description'])}</p>",
        '<p>For programs: <a href="openapi.json">openapi.json</a>. For people: <a href=".">the page</a>.</p>',
    ]
    for path, operations in openapi["paths"].items():
        parts += [_operation(path, method, operation) for method, operation in operations.items()]
    parts.append("<h2>Schemas</h2>")
    parts += [_schema(name, schema) for name, schema in schemas.items() if "properties" in schema]
    return "\n".join([*parts, "</main></body></html>", ""])


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parts = [f'<section><h2><span class="method">{_text(method.upper())}</span> <code>{_text(path)}</code></h2>']
    parts += [f"<p>{_prose(paragraph)}</p>" for paragraph in operation.get("description", "").split("\n\n")]
    for body in operation.get("requestBody", {}).get("content", {}).values():
        parts.append(f"<h3>Body: {_type(body['schema'])}</h3>")
        for name, example in body["examples"].items():
            parts.append(f"<p>{_text(name.capitalize())}:</p><pre>{_text(json.dumps(example['value']))}</pre>")
    parts.append("<h3>Answers</h3><table>")
    for status, answer in operation["responses"].items():
        kinds = [_type(content.get("schema", {})) for content in answer.get("content", {}).values()]
        cells = (status, ", ".join(kinds), _prose(answer["description"]))
        parts.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return "\n".join([*parts, "</table></section>"])


def _schema(name: str, schema: dict[str, Any]) -> str:
    parts = [f'<section id="{_text(name)}"><h3>{_text(name)}</h3><p>{_prose(schema.get("description", ""))}</p><table>']
    for field, value in schema["properties"].items():
        default = f"default {json.dumps(value['default'])}" if "default" in value and name == "Options" else ""
        bounds = [f"{word} {value[key]:,}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in value]
        facts = "; ".join(filter(None, [default, " ".join(bounds)]))
        cells = (f"<code>{_text(field)}</code>", _type(value), _prose(value.get("description", "")), _text(facts))
        parts.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return "\n".join([*parts, "</table></section>"])


def _type(schema: dict[str, Any]) -> str:
    """A type in a few words; schemas of the page are links."""
    if "$ref" in schema:
        name = _text(schema["$ref"].rsplit("/", 1)[-1])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(f"<code>{_text(str(value))}</code>" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return _text(str(schema.get("type", "")))


def _prose(text: str) -> str:
    """Sentences in which backticks mark code.

    >>> _prose("`n` < 3")
    '<code>n</code> &lt; 3'
    """
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", _text(text))


def _text(text: str) -> str:
    return html.escape(text)
