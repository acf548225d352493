"""The shop's tests, which need a Redis: `python manage.py test`."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from io import BytesIO
from threading import Thread
from typing import Any
from unittest.mock import Mock, patch

from asgiref.sync import sync_to_async
from django.contrib.auth.models import Permission, User
from django.core.handlers.asgi import ASGIRequest
from django.core.management import call_command
from django.db import connections, transaction
from django.test import TestCase, TransactionTestCase
from django.utils import timezone

import lowkiq.celery
from lowkiq import InvalidJob, PushFailed
from lowkiq.django import app, outbox, push_by_outbox, push_on_commit
from lowkiq.django.models import OutboxRow
from lowkiq.django.view import view
from lowkiq.web.application import STATIC

from . import jobs, tasks
from .jobs import Change, mirror
from .models import Order


@lowkiq.celery.task(key="order_id", app=app)
def bill(order_id: int, state: str) -> None:
    """Bills an order."""


def queued(worker: Any, id: object) -> list[Any]:
    """The payloads of an id that is queued."""
    found = worker.queries.fetch([str(id)])
    return list(found[0].payloads) if found else []


class Clean(TestCase):
    """Each test has an empty Redis."""

    def setUp(self) -> None:
        app.redis().flushdb()


class Committed(TransactionTestCase):
    """Transactions that do commit, and a Redis that may be away."""

    def setUp(self) -> None:
        app.redis().flushdb()
        self.called: list[str] = []

    @contextlib.contextmanager
    def redis_away(self) -> Iterator[Mock]:
        with patch.object(app, "push_validated", side_effect=PushFailed("Redis is away")) as push:
            yield push

    def test_what_follows_each_other_is_one_push(self) -> None:
        with patch.object(app, "push_validated", wraps=app.push_validated) as push, transaction.atomic():
            push_on_commit(mirror, payloads=[Change(17, 1)])
            with contextlib.suppress(ValueError), transaction.atomic():
                push_on_commit(mirror, payloads=[Change(18, 1)])
                raise ValueError("rolled back")
            with transaction.atomic():
                push_on_commit(mirror, payloads=[Change(17, 2)])
            push_on_commit(mirror, payloads=[Change(17, 3)])
            transaction.on_commit(lambda: self.called.append("between"))
            push_on_commit(mirror, payloads=[Change(17, 4)])
        self.assertEqual([row["version"] for row in queued(mirror, 17)], [1, 2, 3, 4])
        self.assertEqual(queued(mirror, 18), [])
        self.assertLess(push.call_count, 5)
        with patch.object(app, "push_validated", wraps=app.push_validated) as push, transaction.atomic():
            for version in (5, 6, 7):
                with transaction.atomic():
                    push_on_commit(mirror, payloads=[Change(17, version)])
        self.assertEqual(push.call_count, 1)

    def test_a_task_of_celery_s_kind_waits_for_the_commit_and_goes_by_the_outbox(self) -> None:
        with transaction.atomic():
            push_on_commit(bill, [bill.job(17, "now")])
            push_by_outbox(bill, [bill.job(18, "by the outbox")])
        outbox.relay().run_once()
        states = [queued(bill.worker, id)[0]["state"] for id in (17, 18)]
        self.assertEqual(states, ["now", "by the outbox"])

    def test_what_was_rolled_back_last_is_not_pushed_with_others(self) -> None:
        with transaction.atomic():
            push_on_commit(mirror, payloads=[Change(17, 1)])
            push_on_commit(mirror, payloads=[Change(18, 1)])
            with contextlib.suppress(ValueError), transaction.atomic():
                push_on_commit(mirror, payloads=[Change(19, 1)])
                raise ValueError("rolled back")
        self.assertEqual([len(queued(mirror, id)) for id in (17, 18, 19)], [1, 1, 0])

    def test_without_redis_others_are_called_if_it_is_robust_and_else_it_raises(self) -> None:
        for robust in (True, False):
            with self.redis_away() as push:
                raises = contextlib.nullcontext() if robust else self.assertRaises(PushFailed)
                with raises, self.captured(robust), transaction.atomic():
                    Order.objects.create()
                    push_on_commit(mirror, payloads=[Change(17, 1)], robust=robust)
                    push_on_commit(mirror, payloads=[Change(18, 1)], robust=robust)
                    transaction.on_commit(lambda: self.called.append("other"))
                self.assertEqual(push.call_count, 1)
        self.assertEqual((self.called, Order.objects.count()), (["other"], 2))

    def captured(self, robust: bool) -> Any:
        """Django tells of it in its own log, too."""
        return self.assertLogs("django.db.backends.base", "ERROR") if robust else contextlib.nullcontext()


class OnCommit(Clean):
    def test_pushes_after_the_commit(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            push_on_commit(mirror, payloads=[Change(17, 1)])
            self.assertEqual(queued(mirror, 17), [])
        self.assertEqual(queued(mirror, 17), [{"order_id": 17, "version": 1}])

    def test_pushes_nothing_after_a_rollback(self) -> None:
        with self.captureOnCommitCallbacks(execute=True) as callbacks, transaction.atomic():
            push_on_commit(mirror, [{"id": 17, "payload": Change(17, 1)}])
            transaction.set_rollback(True)
        self.assertEqual((callbacks, queued(mirror, 17)), ([], []))

    def test_is_validated_at_once_and_as_it_is_then(self) -> None:
        with self.assertRaisesMessage(InvalidJob, "job 0"):
            push_on_commit(mirror, [{"id": ""}])
        versions = [1]
        with self.captureOnCommitCallbacks(execute=True):
            push_on_commit(jobs.mirror_apart, ({"id": 17, "payload": version} for version in versions))
            versions[0] = 2
        self.assertEqual(queued(jobs.mirror_apart, 17), [1])


class Outbox(Clean):
    def test_sends_what_was_committed_in_order(self) -> None:
        for version in (1, 2, 3):
            push_by_outbox(jobs.mirror_apart, [{"id": 17, "payload": version}])
        with transaction.atomic():
            push_by_outbox(jobs.mirror_apart, [{"id": 17, "payload": 4}])
            transaction.set_rollback(True)
        self.assertEqual(queued(jobs.mirror_apart, 17), [])
        call_command("lowkiq_outbox", "--once")
        self.assertEqual(queued(jobs.mirror_apart, 17), [1, 2, 3])
        self.assertFalse(OutboxRow.objects.exists())

    def test_a_refused_row_holds_up_its_id_alone(self) -> None:
        push_by_outbox(jobs.mirror_apart, [{"id": 17, "payload": 1}, {"id": 18, "payload": 1}])
        push_by_outbox(jobs.mirror_apart, [{"id": 17, "payload": 2}])
        first = OutboxRow.objects.order_by("id")[0]
        job, first.job = first.job, "no job"
        first.save()
        relay = outbox.relay()
        while relay.run_once():
            pass
        self.assertEqual((queued(jobs.mirror_apart, 17), queued(jobs.mirror_apart, 18)), ([], [1]))
        first.refresh_from_db()
        self.assertEqual(first.tries, 1)
        self.assertIn("holds no job", first.error or "")
        OutboxRow.objects.filter(id=first.id).update(job=job, retry_at=0)
        while relay.run_once():
            pass
        self.assertEqual(queued(jobs.mirror_apart, 17), [1, 2])

    def test_is_validated_before_it_is_written(self) -> None:
        with self.assertRaisesMessage(InvalidJob, "job 1"):
            push_by_outbox(jobs.mirror_apart, [{"id": 1, "payload": 1}, {"id": ""}])
        self.assertFalse(OutboxRow.objects.exists())


class Locks(TransactionTestCase):
    """What one test in a transaction can't see."""

    def test_a_second_relay_stands_by(self) -> None:
        seen: list[Any] = []
        push_by_outbox(jobs.mirror_apart, [{"id": 17, "payload": 1}])

        def stand_by() -> None:
            seen.append(outbox.relay().run_once())
            connections.close_all()

        with outbox.relay().store.turn() as turn:
            self.assertIsNotNone(turn)
            thread = Thread(target=stand_by)
            thread.start()
            thread.join()
        self.assertEqual(seen, [None])
        self.assertEqual(outbox.relay().run_once(), 1)


class Tasks(Clean):
    def test_each_has_an_id_of_its_own_or_its_key(self) -> None:
        results = [tasks.anote.enqueue(1, 1), tasks.anote.enqueue(1, 1)]
        keyed = [tasks.note.enqueue(17, version) for version in (1, 1, 2)]
        queue = app.workers["tasks.default"]
        for result in results:
            self.assertEqual(len(queued(queue, result.id)), 1)
        self.assertEqual([one["args"] for one in queued(queue, 17)], [[17, 1], [17, 1], [17, 2]])
        self.assertEqual([one["id"] for one in queued(queue, 17)], [result.id for result in keyed])
        self.assertEqual(str(keyed[0].status), "READY")

    async def test_keyword_arguments_and_awaited_ones(self) -> None:
        await tasks.note.aenqueue(order_id=17, version=3)
        kept = await sync_to_async(queued)(app.workers["tasks.default"], 17)
        self.assertEqual(kept[0]["kwargs"], {"order_id": 17, "version": 3})

    def test_later(self) -> None:
        at = timezone.now() + datetime.timedelta(hours=1)
        result = tasks.anote.using(run_after=at).enqueue(1, 1)
        (job,) = app.workers["tasks.default"].queries.fetch([result.id])
        self.assertAlmostEqual(job.perform_in, at.timestamp(), places=3)

    def test_refuses_what_order_cannot_promise(self) -> None:
        with self.assertRaisesMessage(Exception, "priority"):
            tasks.anote.using(priority=5)
        with self.assertRaisesMessage(Exception, "can't run after"):
            tasks.note.using(run_after=timezone.now())
        with self.assertRaises(NotImplementedError):
            tasks.anote.get_result("x")
        with self.assertRaisesMessage(Exception, "key must be a text"):
            tasks.note.enqueue("", 1)  # type: ignore[arg-type]


class View(Clean):
    def user(self, *permissions: str, is_staff: bool = True) -> User:
        user = User.objects.create_user("ann", is_staff=is_staff)
        for permission in permissions:
            user.user_permissions.add(Permission.objects.get(codename=permission, content_type__app_label="lowkiq"))
        self.client.force_login(user)
        return user

    def test_leads_to_the_admins_login(self) -> None:
        answer = self.client.get("/lowkiq/queues/mirror")
        self.assertRedirects(answer, "/admin/login/?next=/lowkiq/queues/mirror", fetch_redirect_response=False)
        self.user("view", is_staff=False)
        self.assertEqual(self.client.get("/lowkiq/").status_code, 302)

    def test_wants_a_permission(self) -> None:
        self.user()
        self.assertEqual(self.client.get("/lowkiq/").status_code, 403)

    def test_who_may_look_may_not_act(self) -> None:
        self.user("view")
        jobs.mirror_apart.perform_async([{"id": 17, "payload": 1, "delay": 3600}])
        page = self.client.get("/lowkiq/queues/mirror-apart", {"view": "all"})
        self.assertEqual(page.status_code, 200)
        self.assertContains(page, "/lowkiq/static/")
        self.assertNotContains(page, 'name="token" value="')
        act = {"action": "delete", "view": "due", "ids": ["17"]}
        path = "/lowkiq/api/v1/queues/mirror-apart/actions"
        self.assertEqual(self.client.post(path, act, "application/json").status_code, 403)
        self.assertEqual(queued(jobs.mirror_apart, 17), [1])

    def test_who_may_act_acts_with_the_token_of_a_page(self) -> None:
        self.user("change")
        jobs.mirror_apart.perform_async([{"id": 17, "payload": 1, "delay": 3600}])
        act = {"action": "delete", "view": "due", "ids": ["17"]}
        path = "/lowkiq/api/v1/queues/mirror-apart/actions"
        self.assertEqual(self.client.post(path, act, "application/json").status_code, 403)
        token = self.client.get("/lowkiq/api/v1/token").json()["token"]
        headers = {"X-Lowkiq-Token": token}
        foreign = headers | {"Origin": "https://evil.example"}
        self.assertEqual(self.client.post(path, act, "application/json", headers=foreign).status_code, 403)
        done = self.client.post(path, act, "application/json", headers=headers)
        self.assertEqual(done.status_code, 200, done.content)
        self.assertEqual(queued(jobs.mirror_apart, 17), [])
        self.client.logout()
        self.client.force_login(User.objects.create_superuser("bob"))
        self.assertEqual(self.client.post(path, act, "application/json", headers=headers).status_code, 403)

    async def test_answers_under_asgi_too(self) -> None:
        user = await sync_to_async(self.user)("view")
        await self.async_client.aforce_login(user)
        answer = await self.async_client.get("/lowkiq/nodes")
        self.assertContains(answer, "/lowkiq/static/")

    def test_serves_the_files_of_its_pages(self) -> None:
        self.user("view")
        for file in STATIC.iterdir():
            for headers, status in (({}, 200), ({"Range": "bytes=0-9"}, 206)):
                answer = self.client.get(f"/lowkiq/static/{file.name}", headers=headers)
                self.assertEqual(answer.status_code, status, file.name)
                self.assertEqual(answer.content, file.read_bytes()[: 10 if headers else None])
            self.assertEqual(self.client.head(f"/lowkiq/static/{file.name}").status_code, 200)

    def test_takes_any_text_in_an_address_or_a_header(self) -> None:
        self.user("change")
        for raw in ("q=日本".encode().decode("latin-1"), "q=日本", "q=%E6%97%A5%E6%9C%AC"):
            answer = self.client.get("/lowkiq/search", QUERY_STRING=raw, HTTP_X_NAME="日本")
            self.assertContains(answer, 'value="日本"')
        long = self.client.post("/lowkiq/nodes", CONTENT_LENGTH="9" * 5000)
        self.assertEqual(long.status_code, 413)

    def test_takes_any_text_in_an_address_under_asgi(self) -> None:
        user = self.user("view")
        for text in ("日本", "æ"):
            scope = {
                "type": "http", "method": "GET", "path": "/lowkiq/search", "query_string": f"q={text}".encode(),
                "headers": [(b"host", b"testserver")],
            }  # fmt: skip
            request = ASGIRequest(scope, BytesIO())
            request.user = user
            self.assertContains(view(request, "search"), f'value="{text}"')

    def test_serves_no_endless_stream(self) -> None:
        self.user("view")
        self.assertEqual(self.client.get("/lowkiq/api/v1/events").status_code, 501)
