"""Log files of a machine that runnel does not see, over HTTP: a read-only server beside them, and the client.

`GET /logs` lists the files, `GET /logs/NAME` with a `Range` gives bytes of one. Every request has the header `Authorization: Bearer TOKEN`.
There is nothing else: nothing is written, no other file is opened, no name with a slash is known.
"""
