"""
A shop on FastAPI whose search index follows its orders: each change of an order and the job that tells of it are
committed together, so that the index misses none, whatever dies.

    uvicorn examples.fastapi_shop:site          # the site, with the relay of its outbox
    lowkiq -r examples.fastapi_shop:jobs        # a node, which runs the jobs
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import HTTPBasic, HTTPBasicCredentials
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from lowkiq import Lowkiq
from lowkiq.fastapi import lifespan, view_router
from lowkiq.sqlalchemy import Outbox

engine = create_async_engine(os.environ.get("DATABASE_URL", "sqlite+aiosqlite:///shop.db"))
jobs = Lowkiq()


class Base(DeclarativeBase):
    """The shop's tables; the outbox puts its own to them."""


class Order(Base):
    """An order."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(default="new")
    version: Mapped[int] = mapped_column(default=0)


outbox = Outbox(jobs, Base.metadata)


@jobs.worker(queue_name="search")
def index(id: int, changes: list[dict[str, Any]]) -> None:
    """Puts an order into the search index: the last of its changes is how it is now."""
    jobs.redis().hset("shop:index", str(id), f"{changes[-1]['version']} {changes[-1]['status']}")


async def session() -> AsyncIterator[AsyncSession]:
    """A session, whose transaction ends with the request."""
    async with AsyncSession(engine) as made, made.begin():
        yield made


def staff(given: Annotated[HTTPBasicCredentials, Depends(HTTPBasic())]) -> str:
    """Who may look at the jobs: those with the shop's password."""
    expected = os.environ.get("SHOP_PASSWORD", secrets.token_hex())
    if not secrets.compare_digest(given.password.encode(), expected.encode()):
        raise HTTPException(401, headers={"WWW-Authenticate": "Basic"})
    return given.username


def admin(name: Annotated[str, Depends(staff)]) -> None:
    """Who may act on them."""
    if name != "admin":
        raise HTTPException(403, "only admin may change jobs")


@asynccontextmanager
async def tables(_: FastAPI) -> AsyncIterator[None]:
    """The shop's own lifespan."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


site = FastAPI(lifespan=lifespan(jobs, outbox.relay(engine), own=tables))
site.include_router(view_router(jobs, see=[Depends(staff)], act=[Depends(admin)]), prefix="/ops/lowkiq")


@site.put("/orders/{id}")
async def change(id: int, status: str, session: Annotated[AsyncSession, Depends(session, scope="function")]) -> int:
    """Changes an order. Returns its version."""
    order = await session.get(Order, id, with_for_update=True)
    if order is None:
        order = Order(id=id, status=status, version=0)
        session.add(order)
    order.status, order.version = status, order.version + 1
    await outbox.apush(session, index, [{"id": id, "payload": {"status": status, "version": order.version}}])
    return order.version


@site.get("/orders/{id}/index")
async def indexed(id: int) -> str | None:
    """What the search index has of an order."""
    found = jobs.redis().hget("shop:index", str(id))
    return found.decode() if isinstance(found, bytes) else None
