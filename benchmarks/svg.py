"""The parts that all our pictures share: colours, lettering, and a few SVG elements. Text only."""

from xml.sax.saxutils import escape

INK = "#1f2933"
MUTED = "#66727f"
GRID = "#e6e9ed"
PAPER = "#ffffff"
TEAL = "#0f766e"
ORANGE = "#c2410c"
BLUE = "#1d4ed8"
PURPLE = "#7e22ce"
LETTERING = (
    "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:13px}"
    ".title{font-size:20px;font-weight:600}.strong{font-size:14px;font-weight:600}"
)

Place = tuple[float, float]  # pixels from the left and from the top


def opened(width: int, height: int, title: str, style: str) -> list[str]:
    """Return the first elements of a picture on white paper; `CLOSED` is the last one."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<title>{escape(title)}</title><style>{style}</style>",
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
    ]


CLOSED = "</svg>"


def text(at: Place, words: str, *, fill: str = MUTED, css: str = "", anchor: str = "start") -> str:
    """Return text at a place; ``css``: classes of the style."""
    kind = f' class="{css}"' if css else ""
    return f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" fill="{fill}" text-anchor="{anchor}"{kind}>{escape(words)}</text>'


def level(left: float, right: float, y: float, colour: str) -> str:
    """Return a horizontal line."""
    return f'<path d="M{left} {y:.1f}H{right}" stroke="{colour}"/>'


def tick(at: Place, colour: str) -> str:
    """Return a short mark below an axis."""
    return f'<path d="M{at[0]:.1f} {at[1]:.1f}v5" stroke="{colour}"/>'


def polyline(places: list[Place], attributes: str) -> str:
    """Return a line through places; ``attributes``: of its stroke."""
    return f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}" {attributes}/>'


def dot(at: Place, colour: str) -> str:
    """Return a dot for a measured point."""
    return f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="3.5" fill="{colour}"/>'
