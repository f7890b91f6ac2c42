"""A request for each command, from which others are made: each is one that the server takes, or nearly so."""

from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from bson import Binary, Int64

Document = dict[str, Any]

START: Final = datetime(2024, 1, 1, tzinfo=UTC)
_SESSION: Final = {"id": Binary.from_uuid(UUID(int=77))}

LEFT_ALONE: Final = frozenset({"shutdown", "testClock", "ttlPass", "logRotate"})
"""These end the server, are there for tests only, or move files."""

TEMPLATES: Final[dict[str, list[Document]]] = {
    "aggregate": [
        {
            "aggregate": "c",
            "pipeline": [{"$match": {"a": 1}}, {"$group": {"_id": "$b", "n": {"$sum": 1}}}],
            "cursor": {},
        },
        {
            "aggregate": "s",
            "pipeline": [{"$match": {"t": {"$gt": START}}}, {"$sort": {"t": 1}}],
            "cursor": {"batchSize": 2},
        },
        {"aggregate": "s", "pipeline": [{"$group": {"_id": "$m", "v": {"$avg": "$v"}}}], "cursor": {}},
        {"aggregate": 1, "pipeline": [{"$documents": [{"a": 1}]}], "cursor": {}},
        {"aggregate": "c", "pipeline": [], "cursor": {}},
    ],
    "find": [
        {"find": "c", "filter": {"a": {"$gte": 1}}, "sort": {"b": -1}, "projection": {"a": 1}, "limit": 5},
        {"find": "s", "filter": {"m": 1}, "projection": {"v": {"$add": ["$v", 1]}}},
        {"find": "c", "filter": {}, "min": {"a": 1}, "max": {"a": 5}, "hint": {"a": 1}},
        {"find": "view", "filter": {"a": 1}},
    ],
    "insert": [
        {"insert": "c", "documents": [{"a": 1, "b": [1, 2]}], "ordered": True},
        {"insert": "s", "documents": [{"t": START, "m": 1, "v": 2}]},
    ],
    "update": [
        {"update": "c", "updates": [{"q": {"a": 1}, "u": {"$set": {"b": 2}}, "multi": True, "upsert": False}]},
        {"update": "c", "updates": [{"q": {"_id": 1}, "u": [{"$set": {"a": 1}}], "c": {"x": 1}}], "let": {"y": 1}},
        {"update": "c", "updates": [{"q": {"a": 1}, "u": {"$set": {"a.$[x]": 1}}, "arrayFilters": [{"x": 1}]}]},
        {"update": "s", "updates": [{"q": {"m": 1}, "u": {"$set": {"m": 2}}, "multi": True}]},
    ],
    "delete": [
        {"delete": "c", "deletes": [{"q": {"a": 99}, "limit": 1}]},
        {"delete": "s", "deletes": [{"q": {"m": 77}, "limit": 0}]},
    ],
    "findAndModify": [
        {"findAndModify": "c", "query": {"a": 1}, "update": {"$inc": {"n": 1}}, "sort": {"a": 1}, "fields": {"a": 1}},
        {"findAndModify": "c", "query": {"a": 99}, "remove": True},
    ],
    "bulkWrite": [
        {
            "bulkWrite": 1,
            "ops": [
                {"insert": 0, "document": {"a": 1}},
                {"update": 0, "filter": {"a": 1}, "updateMods": {"$set": {"b": 1}}},
            ],
            "nsInfo": [{"ns": "fuzz.c"}],
        }
    ],
    "count": [{"count": "c", "query": {"a": 1}, "limit": 5}, {"count": "s", "query": {}}],
    "distinct": [{"distinct": "c", "key": "a", "query": {"b": 1}}, {"distinct": "s", "key": "m"}],
    "explain": [
        {"explain": {"find": "c", "filter": {"a": 1}}, "verbosity": "executionStats"},
        {"explain": {"aggregate": "s", "pipeline": [{"$match": {"m": 1}}], "cursor": {}}},
    ],
    "getMore": [{"getMore": Int64(1), "collection": "c", "batchSize": 5}],
    "killCursors": [{"killCursors": "c", "cursors": [Int64(1)]}],
    "create": [
        {"create": "new", "validator": {"a": 1}, "validationLevel": "strict"},
        {
            "create": "new",
            "timeseries": {"timeField": "t", "metaField": "m", "granularity": "hours"},
            "expireAfterSeconds": 5,
        },
        {"create": "new", "viewOn": "c", "pipeline": [{"$match": {}}], "collation": {"locale": "en"}},
        {"create": "new", "capped": True, "size": 4096, "max": 5},
        {"create": "new", "clusteredIndex": {"key": {"_id": 1}, "unique": True}},
    ],
    "drop": [{"drop": "new"}],
    "dropDatabase": [{"dropDatabase": 1}],
    "renameCollection": [{"renameCollection": "fuzz.new", "to": "fuzz.new2", "dropTarget": True}],
    "collMod": [
        {"collMod": "c", "index": {"name": "a_1", "hidden": False}, "validator": {}},
        {"collMod": "s", "timeseries": {"granularity": "hours"}},
    ],
    "createIndexes": [
        {"createIndexes": "new", "indexes": [{"key": {"a": 1, "b": -1}, "name": "x", "unique": False, "sparse": True}]},
        {
            "createIndexes": "new",
            "indexes": [{"key": {"a": "2dsphere"}, "name": "y"}, {"key": {"$**": 1}, "name": "z"}],
        },
        {
            "createIndexes": "new",
            "indexes": [{"key": {"a": "text"}, "name": "t", "weights": {"a": 3}, "default_language": "en"}],
        },
        {"createIndexes": "s", "indexes": [{"key": {"v": 1}, "name": "v", "partialFilterExpression": {"m": 1}}]},
        {"createIndexes": "new", "indexes": [{"key": {"at": 1}, "name": "e", "expireAfterSeconds": 10**9}]},
    ],
    "dropIndexes": [{"dropIndexes": "new", "index": "x"}],
    "listIndexes": [{"listIndexes": "c", "cursor": {}}],
    "listCollections": [{"listCollections": 1, "filter": {"type": "view"}, "nameOnly": False, "cursor": {}}],
    "listDatabases": [{"listDatabases": 1, "filter": {"name": "fuzz"}, "nameOnly": False}],
    "validate": [{"validate": "c", "full": True}],
    "collStats": [{"collStats": "c", "scale": 1}],
    "dbStats": [{"dbStats": 1, "scale": 1}],
    "dataSize": [{"dataSize": "fuzz.c", "keyPattern": {"a": 1}, "min": {"a": 0}, "max": {"a": 5}}],
    "cloneCollectionAsCapped": [{"cloneCollectionAsCapped": "c", "toCollection": "new", "size": 9999}],
    "convertToCapped": [{"convertToCapped": "new", "size": 9999}],
    "setFeatureCompatibilityVersion": [{"setFeatureCompatibilityVersion": "8.2", "confirm": True}],
    "setParameter": [{"setParameter": 1, "ttlMonitorSleepSecs": 60}],
    "getParameter": [{"getParameter": 1, "logLevel": 1}],
    "setClusterParameter": [{"setClusterParameter": {"defaultMaxTimeMS": {"readOperations": 0}}}],
    "getClusterParameter": [{"getClusterParameter": "*"}],
    "createUser": [{"createUser": "new", "pwd": "x", "roles": [{"role": "read", "db": "fuzz"}]}],
    "updateUser": [{"updateUser": "new", "roles": []}],
    "createRole": [
        {
            "createRole": "r",
            "privileges": [{"resource": {"db": "fuzz", "collection": ""}, "actions": ["find"]}],
            "roles": [],
        }
    ],
    "saslStart": [{"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": Binary(b"n,,n=a,r=b")}],
    "saslContinue": [{"saslContinue": 1, "conversationId": 1, "payload": Binary(b"c=biws,r=x,p=y")}],
    "hello": [{"hello": 1, "client": {"driver": {"name": "x", "version": "1"}}, "compression": ["zlib"]}],
    "endSessions": [{"endSessions": [_SESSION]}],
    "refreshSessions": [{"refreshSessions": [_SESSION]}],
    "killSessions": [{"killSessions": [_SESSION]}],
    "killOp": [{"killOp": 1, "op": 12345}],
    "currentOp": [{"currentOp": 1, "$ownOps": True}],
    "planCacheSetFilter": [{"planCacheSetFilter": "c", "query": {"a": 1}, "indexes": [{"a": 1}]}],
    "planCacheClear": [{"planCacheClear": "c", "query": {"a": 1}}],
    "profile": [{"profile": 0, "slowms": 100}],
    "fsync": [{"fsync": 1, "lock": False}],
    "validateDBMetadata": [{"validateDBMetadata": 1, "apiParameters": {"version": "1", "strict": True}}],
}
