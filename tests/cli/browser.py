"""A real Chromium, Debian's, without a window. Tests that need it are skipped where it is not installed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver

_PROGRAMS = ("chromium", "chromedriver")
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium(profile: Path) -> Iterator[WebDriver]:
    """The browser; `profile` is a new empty folder. Skips the test if it is not installed."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {' and no '.join(missing)}: apt-get install chromium chromium-driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for option in (*_OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=str(shutil.which("chromedriver")))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield driver
    finally:
        driver.quit()


class Browser:
    """Opens pages one after another, as a user with a keyboard does."""

    def __init__(self, driver: WebDriver) -> None:
        self.driver = driver

    def open(self, page: Path, place: str = "", *, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        scheme = "dark" if dark else "light"
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        )
        self.driver.get("about:blank")  # an address that differs in its last part alone would not be loaded
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)  # of the page before
        self.driver.get(f"{page.as_uri()}{place}")

    def press(self, *keys: str) -> None:
        """Press keys one after another. Names of keys are those of selenium, such as `ENTER`."""
        from selenium.webdriver import ActionChains, Keys

        for key in keys:
            ActionChains(self.driver).send_keys(getattr(Keys, key, key)).perform()

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a JavaScript expression; `arguments[0]` and so on are its arguments."""
        return self.driver.execute_script(f"return ({script});", *arguments)

    def text(self, selector: str) -> str:
        """The text of an element as it is seen, without empty lines; "" if there is none."""
        return "\n".join(self.texts(selector)[:1])

    def texts(self, selector: str) -> list[str]:
        shown = (
            "[...document.querySelectorAll(arguments[0])].map((each) => each.innerText.replace(/\\n\\s*\\n/g, '\\n'))"
        )
        return list(self.run(shown, selector))

    def click(self, selector: str) -> None:
        from selenium.webdriver.common.by import By

        self.driver.find_element(By.CSS_SELECTOR, selector).click()

    def place(self) -> str:
        """The part of the address after `#`."""
        return str(self.run("decodeURIComponent(location.hash)"))

    def complaints(self) -> list[str]:
        """What the page wrote to the console, and errors of its scripts and its policy."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """The addresses that were asked for since the page was opened, itself included."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]
