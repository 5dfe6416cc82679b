"""The project that `runnel init --example sync` writes: a shop in MariaDB, and a front end in PostgreSQL with another schema."""

from __future__ import annotations

from runnel import config

TOML = """\
# A shop in MariaDB, followed by its binary log; its front end in PostgreSQL gets three views of it.
[project]
name = "front"

[run]
epoch = "transaction"            # each transaction of the shop is an epoch of its own

[sources.shop]
type = "mariadb"                 # or "mysql"
host = "127.0.0.1"
port = 3306                      # as `make mariadb` prints it
user = "root"                    # with password = "${SHOP_PASSWORD}", from the environment
database = "shop"
tables = ["track", "description", "download"]   # all others of the database are left out

[targets.front]
type = "postgres"
url = "postgresql://postgres@127.0.0.1:5432/front"   # the port that `make postgres` prints
views = { catalogue = "catalogue", share = "share", price_change = "price_change" }
keys = { share = ["download", "party"] }        # the key of a UNION is not known by itself
"""

CATALOGUE = """\
-- Several rows become one: a track and its descriptions, one column per language.
CREATE MATERIALIZED VIEW catalogue
COMMENT 'a row per track'
AS SELECT t.id, t.title, t.price,
       max(CASE WHEN d.language = 'en' THEN d.text END) AS english,
       max(CASE WHEN d.language = 'nl' THEN d.text END) AS dutch
FROM track t LEFT JOIN description d ON d.track = t.id
GROUP BY t.id, t.title, t.price;
"""

SHARE = """\
-- One row becomes two: what the shop and what the artist gets of a download.
CREATE MATERIALIZED VIEW share
COMMENT 'two rows per download'
AS SELECT id AS download, 'shop' AS party, paid - fee AS amount FROM download
UNION ALL
SELECT id AS download, 'artist' AS party, fee AS amount FROM download;
"""

PRICE_CHANGE = """\
-- What happened, not what is: every change of a price, with the earlier value. Rows are only added.
CREATE MATERIALIZED VIEW price_change
COMMENT 'a row per changed price'
AS SELECT new.id AS track, old.price AS was, new.price AS now
FROM CHANGES(track)
WHERE old.price <> new.price;
"""

SHOP = """\
-- The shop as it is when the front end begins to follow it.
CREATE DATABASE shop;
USE shop;
CREATE TABLE track (id INT PRIMARY KEY, title VARCHAR(40) NOT NULL, price DECIMAL(8,2) NOT NULL);
CREATE TABLE description (track INT, language CHAR(2), text VARCHAR(80), PRIMARY KEY (track, language));
CREATE TABLE download (
  id INT PRIMARY KEY, track INT NOT NULL, customer VARCHAR(20) NOT NULL, paid DECIMAL(8,2) NOT NULL, fee DECIMAL(8,2) NOT NULL
);
CREATE TABLE session (id INT PRIMARY KEY, customer VARCHAR(20));  -- not followed

INSERT INTO track VALUES (1, 'Rain', 0.99), (2, 'Wind', 1.29);
INSERT INTO description VALUES (1, 'en', 'a slow one'), (1, 'nl', 'een langzame'), (2, 'en', 'a fast one');
INSERT INTO download VALUES (1, 1, 'ada', 0.99, 0.30);
"""

DAY = """\
-- A day in the shop: three transactions, and one that is taken back.
START TRANSACTION;
INSERT INTO download VALUES (2, 2, 'ben', 1.29, 0.40), (3, 1, 'ben', 0.99, 0.30);
INSERT INTO session VALUES (1, 'ben');
COMMIT;

UPDATE track SET price = 1.49 WHERE id = 2;

START TRANSACTION;
INSERT INTO description VALUES (2, 'nl', 'een snelle');
UPDATE track SET title = 'Rain (live)', price = 1.09 WHERE id = 1;
DELETE FROM download WHERE id = 1;
COMMIT;

START TRANSACTION;
UPDATE track SET price = 99;
ROLLBACK;
"""

READ = """\
# A shop in MariaDB, its front end in PostgreSQL

`runnel.toml` names the two servers, `views/` says what the front end gets, `shop.sql` makes the shop and `day.sql` changes it.
For throw-away servers run `make mariadb` and `make postgres` in runnel's own folder, and put the ports that they print into
`runnel.toml` and below. docs/sync.md goes through this with all of the output.

    mariadb --host 127.0.0.1 --port 3306 --user root < shop.sql
    psql postgresql://postgres@127.0.0.1:5432/postgres -c 'CREATE DATABASE front'
    runnel check
    runnel run --once                 # a snapshot; without --once it goes on following
    mariadb --host 127.0.0.1 --port 3306 --user root shop < day.sql
    runnel run --once                 # the log since then
    psql postgresql://postgres@127.0.0.1:5432/front -c 'SELECT * FROM catalogue ORDER BY id'
    runnel verify                     # the views against their SQL
    runnel verify --target front      # the tables there against the views
"""

FILES = {
    config.FILE: TOML,
    "README.md": READ,
    "views/catalogue.sql": CATALOGUE,
    "views/share.sql": SHARE,
    "views/price_change.sql": PRICE_CHANGE,
    "shop.sql": SHOP,
    "day.sql": DAY,
}
"""The files by their names."""
