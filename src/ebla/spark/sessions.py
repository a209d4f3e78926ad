"""The Spark sessions of one connection: the user's own, or one that is started when needed, and those made from it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ebla.base.settings import Settings
from ebla.errors import UsageError
from ebla.spark import in_place
from ebla.spark import session as spark_session
from ebla.spark.pieces import Pieces
from ebla.spark.tags import Tags

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Sessions:
    """Safe to use from several threads. A Spark that Ebla started and that is gone is started again at the next use.

    `on_launch` is called before Spark is started, `on_loss` when one is gone with all frames made in it. Where none may
    be started, `refusal` says to what needs one what to do instead.
    """

    def __init__(
        self,
        given: SparkSession | None,
        settings: Settings,
        on_launch: Callable[[], None],
        on_loss: Callable[[], None],
        *,
        refusal: str | None = None,
    ) -> None:
        self._given = given
        self._settings = settings
        self._on_launch = on_launch
        self._on_loss = on_loss
        self._refusal = refusal
        self._started: spark_session.StartedSession | None = None
        self._writer: SparkSession | None = None
        self._in_place: SparkSession | None = None
        self._of_views: dict[object, SparkSession] = {}
        self._lock = threading.RLock()
        self.tags = Tags(lambda: self.current)
        """Which jobs belong to which statement."""
        self.pieces = Pieces(self.tags)
        """The piece of a compaction that is at work, which a large epoch may have abandoned."""
        self.on_start: Callable[[], None] = lambda: None
        """Called when Spark was started: work in the background was waiting for it."""

    @property
    def current(self) -> SparkSession | None:
        """The user's session, or the one that was started last, be it running or not."""
        return self._given if self._started is None else self._started.session

    @property
    def can_work(self) -> bool:
        """Whether there is a session, and it runs or the next use starts it again."""
        current = self.current
        if current is None:
            return False
        return spark_session.is_running(current) or (self._started is not None and self._started.can_restart)

    @property
    def has_spark(self) -> bool:
        """Whether Spark was started already."""
        return self.current is not None

    @property
    def spark(self) -> SparkSession:
        """The user's session, or one that is started now and stopped at close."""
        session, fresh = self._main()
        self.tags.put()
        if fresh:
            self.on_start()
        return session

    def expression_settings(self) -> Mapping[str, str]:
        """What expressions depend on in the user's session, or would in one that is started for them."""
        return spark_session.view_settings(self.spark) if self.has_spark else spark_session.STARTED_SETTINGS

    def _main(self) -> tuple[SparkSession, bool]:
        """The user's session, or one that is started now; whether it was started now."""
        if self._given is not None:
            spark_session.require_running(self._given)
            spark_session.remember_classes(self._given)
            return self._given, False
        if self._refusal is not None:
            raise UsageError(self._refusal)
        with self._lock:
            if self._started is not None and self._started.can_restart and not self._started.is_running:
                self._started = self._writer = self._in_place = None
                self._of_views.clear()
                self._on_loss()
            fresh = self._started is None
            if self._started is None:
                self._on_launch()
                self._started = spark_session.StartedSession.start(self._settings)
            spark_session.require_running(self._started.session)
            spark_session.remember_classes(self._started.session)
            return self._started.session, fresh

    @property
    def writer(self) -> SparkSession:
        _ = self.spark  # which says what there is to say when it is started
        with self._lock:
            main, _ = self._main()
            if self._writer is None:
                self._writer = spark_session.writer_session(main)
            return self._writer

    def in_place(self) -> SparkSession:
        """A session that writes the rows of each file that it reads where they are."""
        with self._lock:
            main, _ = self._main()
            if self._in_place is None:
                self._in_place = in_place.in_place_session(main)
            return self._in_place

    def of_view(self, settings: Mapping[str, str], *, small: bool, generates_code: bool = False) -> SparkSession:
        """A session in which views of these settings are computed, whatever the user's session says.

        For a few rows (`small`) Spark plans once and runs one job: adapting to sizes would cost more than it saves.
        """
        _ = self.spark
        signature = (tuple(sorted(settings.items())), small, generates_code)
        with self._lock:
            main, _ = self._main()
            if signature not in self._of_views:
                self._of_views[signature] = spark_session.view_session(
                    main, settings, small=small, generates_code=generates_code
                )
            return self._of_views[signature]

    def stop(self) -> None:
        if self._started is not None:
            self._started.stop()
