"""Pictures of Replication Monitor's pages: `PYTHONPATH=tests python -m browser.pictures [FOLDER [WIDTH]]`, those of the
docs where no folder is given.

What they show is partly made: hours of history, and a schema change, written into the distribution database.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from support.checkout import CHECKOUT
from support.embedded_postgres import PostgresServer, ServerSettings
from support.monitored_sites import ADMIN, MonitoredSites, monitored_sites
from support.site import Site, execute
from tranrepl.admin.trace import post_token

_THEMES = ("light", "dark")
_SHOWN_FOLDER = "/srv/tranrepl"
"""What pictures have in place of the temporary folder."""
_SHOW = """([folder, shown]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(folder, shown);
}"""
_ANSWERED_MILLISECONDS = 3_000
_WIDTH, _HEIGHT = 1280, 720
_MOST_HEIGHT = 1_000
_COLOURS = 256
_OVERVIEW = ("monitor", "plugin/replication-monitor")
"""Within Airflow's own page."""
_PARTS = ("history", "articles", "snapshots", "validations", "schema-changes", "errors", "settings", "actions")
_PAGES = {
    "publication": "monitor/publication/orders",
    "publication-ill": "monitor/publication/shop",
    **{f"monitor-{it}": f"monitor/publication/shop/{it}" for it in _PARTS},
    "monitor-validations": "monitor/publication/away/validations",
    "monitor-commands": "monitor/publication/shop/commands?failing=reporting",
    "monitor-skip": "monitor/publication/shop/skip/reporting",
}
_HISTORY = """
INSERT INTO {table} (id, publication_id, {more} runstatus, start_time, time, duration, comments, delivered_transactions,
                     delivered_commands, delivery_rate, delivery_latency, commands_by_article)
SELECT -n, publication_id, {value} 2, at - interval '4 s', at, 4,
       format('%s transactions with %s commands {done}.', 30 + n % 40, 60 + n * 7 % 300), 30 + n % 40,
       60 + n * 7 % 300, 15 + n % 60, 900 + n * 37 % 2100, json_build_object('public.item', 60 + n * 7 % 300)
  FROM {source}, generate_series(1, 280) n, LATERAL (SELECT now() - interval '5 min' * n AS at) a
"""
_MEASURED = """
INSERT INTO msrepl_deliveries (subscription_id, time, publication_id, seconds, transactions, commands,
                               undelivered_commands, latency)
SELECT subscription_id, date_trunc('minute', now()) - interval '5 min' * n, publication_id, 60, 30 + n % 40,
       60 + n * 7 % 300, CASE WHEN n % 11 < 3 THEN n * 13 % 80 ELSE 0 END,
       json_build_object('registered', json_build_object(70 + n % 4, 50, 76 + n % 5, 40, 82 + n % 3, 3),
                         'delivered', json_build_object(74 + n % 6, 50, 80 + n % 4, 40, 86 + n % 5, 3),
                         'overall', json_build_object(79 + n % 5, 50, 84 + n % 4, 40, 89 + n % 4, 3))
  FROM mssubscriptions, generate_series(1, 8000) n ON CONFLICT DO NOTHING
"""
_CHANGE = """
INSERT INTO msschema_changes (publication_id, xact_seqno, command_id, change, entry_time)
SELECT publication_id, registered_xact_seqno, 1, '{"script": "new_index.sql"}', now() FROM mspublications
"""
_NEXT_RUN = "UPDATE dag SET next_dagrun_create_after = now() + interval '4 min'"
_SNAPSHOT = """
UPDATE msdistribution_history SET comments = 'The snapshot is being delivered.', runstatus = 3, snapshot =
 '[{"article": "public.item", "rows": 184200, "bytes": 73400320, "share": 0.62, "seconds": 41.0}]'
 WHERE id = -12
"""


def _made(site: Site) -> None:
    """Give a publication a day of history."""
    distribution = site.connections[site.publication.distributor.connection]
    stored = {"table": "mslogreader_history", "more": "", "value": "", "source": "mspublications", "done": "stored"}
    delivered = {"table": "msdistribution_history", "source": "mssubscriptions", "done": "delivered"}
    number = {"more": "subscription_id,", "value": "subscription_id,"}
    for statement in (
        _HISTORY.format(**stored),
        _HISTORY.format(**delivered, **number),
        _MEASURED,
        _CHANGE,
        _SNAPSHOT,
    ):
        execute(distribution, statement)


def _prepare(sites: MonitoredSites) -> None:
    post_token(sites.shop.topology)
    sites.shop.read_log().raise_error()
    sites.shop.deliver()
    sites.away.at_subscriber("DELETE FROM item WHERE id IN (3, 4)")
    sites.away.validate()
    for site in (sites.shop, sites.orders):
        _made(site)


def _take(page: Page, file: Path, height: int) -> None:
    """Write what is seen, in few colours: a picture is a third as large then."""
    seen = page.screenshot(clip={"x": 0, "y": 0, "width": _size(page)["width"], "height": height}, full_page=True)
    Image.open(BytesIO(seen)).convert("RGB").quantize(
        _COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
    ).save(file, optimize=True)


def _size(page: Page) -> ViewportSize:
    assert page.viewport_size is not None
    return page.viewport_size


def take_pictures(chromium: Browser, sites: MonitoredSites, folder: Path, width: int, here: Path) -> None:
    """Write a picture of each page in each theme, without the temporary folder that all of it is in."""
    for theme in _THEMES:
        with chromium.new_context(viewport={"width": width, "height": _HEIGHT}) as context:
            context.set_default_timeout(60_000)
            context.add_init_script(f"localStorage.theme ??= '{theme}'")
            context.add_cookies([{"name": "_token", "value": sites.token(ADMIN), "url": sites.url}])
            page = context.new_page()
            # What is asked for beside the pages has been answered then.
            page.goto(f"{sites.url}/monitor/")
            page.wait_for_timeout(_ANSWERED_MILLISECONDS)
            for name, path in _PAGES.items():
                page.goto(f"{sites.url}/{path}")
                page.evaluate(_SHOW, [str(here), _SHOWN_FOLDER])
                shown = page.evaluate("Math.ceil(document.body.getBoundingClientRect().height)")
                _take(page, folder / f"{name}-{theme}.png", min(shown, _MOST_HEIGHT))
            name, path = _OVERVIEW
            page.goto(f"{sites.url}/{path}")
            page.frame_locator("iframe").locator("tbody").first.wait_for()
            page.wait_for_timeout(1_000)
            page.frames[-1].evaluate(_SHOW, [str(here), _SHOWN_FOLDER])
            _take(page, folder / f"{name}-{theme}.png", _HEIGHT)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else CHECKOUT / "docs" / "images"
    width = int(sys.argv[2]) if len(sys.argv) > 2 else _WIDTH
    chromium_path = shutil.which("chromium") or "/usr/bin/chromium"
    arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as here,
        PostgresServer(ServerSettings(Path(here) / "server", fsync=False)) as server,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium_path, args=arguments) as chromium,
        monitored_sites(server, Path(here)) as sites,
    ):
        _prepare(sites)
        # No scheduler runs here, which would say when the next run is.
        execute(server.connection("monitor_airflow", "airflow"), _NEXT_RUN)
        take_pictures(chromium, sites, folder, width, Path(here))


if __name__ == "__main__":
    main()
