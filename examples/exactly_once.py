"""Payments booked exactly once, although each message may come twice: ids in the same database.

Delivery is at least once. The id that its producer gave a message is the same in every delivery,
so it goes into a table in the same SQLite transaction as the work itself: either both are there,
or none, and a second delivery finds it.

    rocketpy standalone --data ./data
    python examples/exactly_once.py --database books.db

Send payments from elsewhere, then stop it with Ctrl-C or SIGTERM, or kill it:

    printf 'alice:10\nbob:5\n' | rocketpy send payments --lines -K :
"""

import argparse
import asyncio
import signal
import sqlite3

import rocketpy
from rocketpy.errors import RocketPyError

TABLES = """
CREATE TABLE IF NOT EXISTS done (id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS balance (account TEXT PRIMARY KEY, amount INTEGER NOT NULL);
"""
BOOK = """
INSERT INTO balance VALUES (?, ?)
ON CONFLICT (account) DO UPDATE SET amount = amount + excluded.amount
"""


class Books:
    """Accounts in a file.

    Args:
        path: of the SQLite file; made when it is not there.
    """

    def __init__(self, path: str) -> None:
        # One connection for all handlers: they take turns on the loop.
        self._database = sqlite3.connect(path)
        self._database.executescript(TABLES)

    def book(self, message_id: str, account: str, amount: int) -> bool:
        """Book a payment once; returns False when the message was booked before."""
        with self._database:  # all of it, or nothing
            new = self._database.execute("INSERT OR IGNORE INTO done VALUES (?)", [message_id])
            if new.rowcount == 0:
                return False
            self._database.execute(BOOK, [account, amount])
        return True

    def close(self) -> None:
        """Close the file."""
        self._database.close()


async def work(name_server: str, books: Books) -> None:
    """Book payments until a signal."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    async def pay(message: rocketpy.ReceivedMessage) -> None:
        try:
            account, amount = message.keys[0], int(message.body)
        except (IndexError, ValueError) as error:
            raise rocketpy.ToDLQ(f"no payment: {error}") from error
        is_new = books.book(message.id, account, amount)
        print("booked" if is_new else "known", account, amount, flush=True)

    async with (
        rocketpy.connect(name_server) as client,
        client.consumer("payments", group="books", start="earliest", handler=pay),
    ):
        await stop.wait()


def main() -> None:
    """Read the command line and work."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--name-server", default="127.0.0.1:9876")
    parser.add_argument("--database", default="books.db")
    options = parser.parse_args()
    books = Books(options.database)
    asyncio.run(work(options.name_server, books))
    books.close()


if __name__ == "__main__":
    try:
        main()
    except RocketPyError as error:  # such as name servers that do not answer
        raise SystemExit(f"error: {error}") from None
