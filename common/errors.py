"""Every error a client can be told, one class each: the table at the end.

A row of the table is a class whose name is the wire's `codeName` and whose number is the wire's `code`.
Failures that MongoDB tells by number alone are raised as `Location(number, message)`; their `codeName` is `Location<number>`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class MongoError(Exception):
    """What went wrong, in the words the client will read.

    `extra` holds further top-level fields of the reply (`keyPattern`, `keyValue`, `errInfo`, `violations` …);
    `labels` the `errorLabels`.
    """

    number: int = 0
    by_number: ClassVar[dict[int, type["MongoError"]]] = {}

    def __init_subclass__(cls, *, number: int | None = None) -> None:
        super().__init_subclass__()
        if number is None:
            return
        assert number not in cls.by_number, f"{cls.__name__}: {number} is taken"
        cls.number = number
        cls.by_number[number] = cls

    def __init__(self, message: str, *, extra: Mapping[str, Any] | None = None, labels: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.extra: dict[str, Any] = dict(extra or {})
        self.labels: tuple[str, ...] = tuple(labels)

    @property
    def code_name(self) -> str:
        """The wire's name of the code."""
        return type(self).__name__

    def reply(self) -> dict[str, Any]:
        """The whole reply to a command that failed."""
        reply: dict[str, Any] = {"ok": 0.0, "errmsg": self.message, "code": self.number, "codeName": self.code_name}
        reply.update(self.extra)
        if self.labels:
            reply["errorLabels"] = list(self.labels)
        return reply

    def write_error(self, index: int) -> dict[str, Any]:
        """The same failure as one row of `writeErrors`."""
        return {"index": index, "code": self.number, "errmsg": self.message, **self.extra}

    def with_context(self, context: str) -> "MongoError":
        """The same error with `<context> :: caused by :: ` before its message."""
        self.message = f"{context} :: caused by :: {self.message}"
        self.args = (self.message,)
        return self


class Location(MongoError):
    """A failure that has a number and no name."""

    def __init__(self, number: int, message: str, *, extra: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, extra=extra)
        self.number = number

    @property
    def code_name(self) -> str:
        """`Location` and the number, as drivers show it."""
        return f"Location{self.number}"


def error_for(number: int, message: str) -> MongoError:
    """The error with this number: its class of the table, or a `Location`."""
    row = MongoError.by_number.get(number)
    return row(message) if row is not None else Location(number, message)


# The table, by number.


class InternalError(MongoError, number=1):
    """A fault of the server itself."""


class BadValue(MongoError, number=2):
    """A value that means nothing where it stands."""


class NoSuchKey(MongoError, number=4):
    """No such key."""


class GraphContainsCycle(MongoError, number=5):
    """Graph contains cycle."""


class HostUnreachable(MongoError, number=6):
    """Host unreachable."""


class HostNotFound(MongoError, number=7):
    """Host not found."""


class UnknownError(MongoError, number=8):
    """A failure that has no better name."""


class FailedToParse(MongoError, number=9):
    """Input whose form cannot be read."""


class CannotMutateObject(MongoError, number=10):
    """Cannot mutate object."""


class UserNotFound(MongoError, number=11):
    """User not found."""


class UnsupportedFormat(MongoError, number=12):
    """Unsupported format."""


class Unauthorized(MongoError, number=13):
    """The client may not do this."""


class TypeMismatch(MongoError, number=14):
    """A field of the right name with a value of the wrong type."""


class Overflow(MongoError, number=15):
    """Overflow."""


class InvalidLength(MongoError, number=16):
    """Invalid length."""


class ProtocolError(MongoError, number=17):
    """Protocol error."""


class AuthenticationFailed(MongoError, number=18):
    """Authentication failed."""


class IllegalOperation(MongoError, number=20):
    """An operation that is never allowed here."""


class EmptyArrayOperation(MongoError, number=21):
    """Empty array operation."""


class InvalidBSON(MongoError, number=22):
    """Invalid bson."""


class AlreadyInitialized(MongoError, number=23):
    """Already initialized."""


class LockTimeout(MongoError, number=24):
    """Lock timeout."""


class NamespaceNotFound(MongoError, number=26):
    """No such database, collection or view."""


class IndexNotFound(MongoError, number=27):
    """No such index."""


class PathNotViable(MongoError, number=28):
    """Path not viable."""


class RoleNotFound(MongoError, number=31):
    """Role not found."""


class CannotBackfillArray(MongoError, number=34):
    """Cannot backfill array."""


class FileStreamFailed(MongoError, number=39):
    """The disk did not read or write as it was told."""


class ConflictingUpdateOperators(MongoError, number=40):
    """Conflicting update operators."""


class CursorNotFound(MongoError, number=43):
    """Cursor not found."""


class NoMatchingDocument(MongoError, number=47):
    """No matching document."""


class NamespaceExists(MongoError, number=48):
    """The name is taken."""


class InvalidRoleModification(MongoError, number=49):
    """A role cannot be changed like that."""


class MaxTimeMSExpired(MongoError, number=50):
    """The operation ran longer than its maxTimeMS."""


class DollarPrefixedFieldName(MongoError, number=52):
    """Dollar prefixed field name."""


class InvalidIdField(MongoError, number=53):
    """Invalid id field."""


class NotSingleValueField(MongoError, number=54):
    """Not single value field."""


class InvalidDBRef(MongoError, number=55):
    """Invalid dbref."""


class EmptyFieldName(MongoError, number=56):
    """Empty field name."""


class DottedFieldName(MongoError, number=57):
    """Dotted field name."""


class CommandNotFound(MongoError, number=59):
    """A verb that nobody registered."""


class ShardKeyNotFound(MongoError, number=61):
    """Shard key not found."""


class StaleShardVersion(MongoError, number=63):
    """Stale shard version."""


class WriteConcernTimeout(MongoError, number=64):
    """Write concern timeout."""


class MultipleErrorsOccurred(MongoError, number=65):
    """Multiple errors occurred."""


class ImmutableField(MongoError, number=66):
    """A field that may not change."""


class CannotCreateIndex(MongoError, number=67):
    """An index that cannot be made from this specification."""


class IndexAlreadyExists(MongoError, number=68):
    """Index already exists."""


class AuthSchemaIncompatible(MongoError, number=69):
    """Auth schema incompatible."""


class ReplicaSetNotFound(MongoError, number=71):
    """Replica set not found."""


class InvalidOptions(MongoError, number=72):
    """Options that do not go together, or not with this kind of collection."""


class InvalidNamespace(MongoError, number=73):
    """A database or collection name that is not allowed."""


class NodeNotFound(MongoError, number=74):
    """Node not found."""


class NoReplicationEnabled(MongoError, number=76):
    """No replication enabled."""


class UnknownReplWriteConcern(MongoError, number=79):
    """Unknown repl write concern."""


class IndexOptionsConflict(MongoError, number=85):
    """An index with the same keys and other options exists."""


class IndexKeySpecsConflict(MongoError, number=86):
    """An index with the same name and other keys exists."""


class NetworkTimeout(MongoError, number=89):
    """Network timeout."""


class ShutdownInProgress(MongoError, number=91):
    """Shutdown in progress."""


class InvalidReplicaSetConfig(MongoError, number=93):
    """Invalid replica set config."""


class NotYetInitialized(MongoError, number=94):
    """Not yet initialized."""


class NotSecondary(MongoError, number=95):
    """Not secondary."""


class OperationFailed(MongoError, number=96):
    """Operation failed."""


class NoProjectionFound(MongoError, number=97):
    """No projection found."""


class DBPathInUse(MongoError, number=98):
    """Dbpath in use."""


class UnsatisfiableWriteConcern(MongoError, number=100):
    """Unsatisfiable write concern."""


class NewReplicaSetConfigurationIncompatible(MongoError, number=103):
    """New replica set configuration incompatible."""


class NodeNotElectable(MongoError, number=104):
    """Node not electable."""


class LockFailed(MongoError, number=107):
    """Lock failed."""


class NotExactValueField(MongoError, number=111):
    """Not exact value field."""


class WriteConflict(MongoError, number=112):
    """Another writer changed the same data first."""


class CommandNotSupported(MongoError, number=115):
    """Command not supported."""


class DocTooLargeForCapped(MongoError, number=116):
    """Doc too large for capped."""


class ConflictingOperationInProgress(MongoError, number=117):
    """Conflicting operation in progress."""


class OplogStartMissing(MongoError, number=120):
    """Oplog start missing."""


class DocumentValidationFailure(MongoError, number=121):
    """A document that the collection validator refuses."""


class NotAReplicaSet(MongoError, number=123):
    """Not areplica set."""


class CommandFailed(MongoError, number=125):
    """Command failed."""


class FailedToSatisfyReadPreference(MongoError, number=133):
    """Failed to satisfy read preference."""


class ReadConcernMajorityNotAvailableYet(MongoError, number=134):
    """Read concern majority not available yet."""


class CappedPositionLost(MongoError, number=136):
    """Capped position lost."""


class JSInterpreterFailure(MongoError, number=139):
    """Jsinterpreter failure."""


class InvalidSSLConfiguration(MongoError, number=140):
    """Certificates that cannot be used."""


class CursorInUse(MongoError, number=143):
    """Cursor in use."""


class ExceededMemoryLimit(MongoError, number=146):
    """Exceeded memory limit."""


class StaleEpoch(MongoError, number=150):
    """Stale epoch."""


class MaxStalenessOutOfRange(MongoError, number=160):
    """Max staleness out of range."""


class IncompatibleCollationVersion(MongoError, number=161):
    """Incompatible collation version."""


class ViewDepthLimitExceeded(MongoError, number=165):
    """View depth limit exceeded."""


class CommandNotSupportedOnView(MongoError, number=166):
    """The command does not run on views or time-series collections."""


class OptionNotSupportedOnView(MongoError, number=167):
    """Option not supported on view."""


class InvalidPipelineOperator(MongoError, number=168):
    """Invalid pipeline operator."""


class CannotIndexParallelArrays(MongoError, number=171):
    """Cannot index parallel arrays."""


class QueryPlanKilled(MongoError, number=175):
    """Query plan killed."""


class AmbiguousIndexKeyPattern(MongoError, number=181):
    """Ambiguous index key pattern."""


class InvalidViewDefinition(MongoError, number=182):
    """Invalid view definition."""


class ClientMetadataMissingField(MongoError, number=183):
    """Client metadata missing field."""


class ClientMetadataAppNameTooLarge(MongoError, number=184):
    """Client metadata app name too large."""


class ClientMetadataDocumentTooLarge(MongoError, number=185):
    """Client metadata document too large."""


class ClientMetadataCannotBeMutated(MongoError, number=186):
    """Client metadata cannot be mutated."""


class PrimarySteppedDown(MongoError, number=189):
    """Primary stepped down."""


class ViewPipelineMaxSizeExceeded(MongoError, number=195):
    """View pipeline max size exceeded."""


class InvalidIndexSpecificationOption(MongoError, number=197):
    """Invalid index specification option."""


class CannotBuildIndexKeys(MongoError, number=201):
    """Cannot build index keys."""


class ClusterTimeFailsRateLimiter(MongoError, number=205):
    """Cluster time fails rate limiter."""


class NoSuchSession(MongoError, number=206):
    """No such session."""


class InvalidUUID(MongoError, number=207):
    """Invalid uuid."""


class KeyNotFound(MongoError, number=211):
    """Key not found."""


class DuplicateSession(MongoError, number=213):
    """Duplicate session."""


class DatabaseDropPending(MongoError, number=215):
    """Database drop pending."""


class IncompleteTransactionHistory(MongoError, number=217):
    """Incomplete transaction history."""


class CloseChangeStream(MongoError, number=222):
    """Close change stream."""


class IllegalOpMsgFlag(MongoError, number=223):
    """Illegal op msg flag."""


class QueryFeatureNotAllowed(MongoError, number=224):
    """Query feature not allowed."""


class TransactionTooOld(MongoError, number=225):
    """Transaction too old."""


class AtomicityFailure(MongoError, number=226):
    """Atomicity failure."""


class MaxSubPipelineDepthExceeded(MongoError, number=232):
    """Max sub pipeline depth exceeded."""


class TooManyDocumentSequences(MongoError, number=233):
    """Too many document sequences."""


class RetryChangeStream(MongoError, number=234):
    """Retry change stream."""


class CursorKilled(MongoError, number=237):
    """Cursor killed."""


class NotImplemented(MongoError, number=238):
    """Known to MongoDB, and not built here."""


class SnapshotTooOld(MongoError, number=239):
    """Snapshot too old."""


class ConversionFailure(MongoError, number=241):
    """Conversion failure."""


class CannotCreateCollection(MongoError, number=242):
    """Cannot create collection."""


class SnapshotUnavailable(MongoError, number=246):
    """Snapshot unavailable."""


class NoSuchTransaction(MongoError, number=251):
    """No such transaction."""


class TransactionCommitted(MongoError, number=256):
    """Transaction committed."""


class TransactionTooLarge(MongoError, number=257):
    """Transaction too large."""


class InvalidResumeToken(MongoError, number=260):
    """Invalid resume token."""


class TooManyLogicalSessions(MongoError, number=261):
    """Too many logical sessions."""


class ExceededTimeLimit(MongoError, number=262):
    """Exceeded time limit."""


class OperationNotSupportedInTransaction(MongoError, number=263):
    """Operation not supported in transaction."""


class TooManyFilesOpen(MongoError, number=264):
    """Too many files open."""


class FailPointSetFailed(MongoError, number=266):
    """Fail point set failed."""


class PreparedTransactionInProgress(MongoError, number=267):
    """Prepared transaction in progress."""


class IndexBuildAborted(MongoError, number=276):
    """Index build aborted."""


class UnsatisfiableCommitQuorum(MongoError, number=278):
    """Unsatisfiable commit quorum."""


class ClientDisconnect(MongoError, number=279):
    """Client disconnect."""


class ChangeStreamFatalError(MongoError, number=280):
    """Change stream fatal error."""


class IndexBuildAlreadyInProgress(MongoError, number=285):
    """Index build already in progress."""


class ChangeStreamHistoryLost(MongoError, number=286):
    """Change stream history lost."""


class ChecksumMismatch(MongoError, number=288):
    """Checksum mismatch."""


class TransactionExceededLifetimeLimitSeconds(MongoError, number=290):
    """Transaction exceeded lifetime limit seconds."""


class NoQueryExecutionPlans(MongoError, number=291):
    """No query execution plans."""


class QueryExceededMemoryLimitNoDiskUseAllowed(MongoError, number=292):
    """Query exceeded memory limit no disk use allowed."""


class DataCorruptionDetected(MongoError, number=301):
    """Data corruption detected."""


class ObjectIsBusy(MongoError, number=314):
    """Object is busy."""


class APIVersionError(MongoError, number=322):
    """Apiversion error."""


class APIStrictError(MongoError, number=323):
    """Apistrict error."""


class APIDeprecationError(MongoError, number=324):
    """Apideprecation error."""


class MechanismUnavailable(MongoError, number=334):
    """Mechanism unavailable."""


class TimeseriesBucketCleared(MongoError, number=336):
    """Timeseries bucket cleared."""


class ChangeStreamInvalidated(MongoError, number=346):
    """Change stream invalidated."""


class APIMismatchError(MongoError, number=347):
    """Apimismatch error."""


class ChangeStreamTopologyChange(MongoError, number=348):
    """Change stream topology change."""


class UnsupportedOpQueryCommand(MongoError, number=352):
    """Unsupported op query command."""


class LoadBalancerSupportMismatch(MongoError, number=354):
    """Load balancer support mismatch."""


class InvalidBSONType(MongoError, number=357):
    """Invalid bsontype."""


class CannotConvertIndexToUnique(MongoError, number=359):
    """Cannot convert index to unique."""


class CollectionUUIDMismatch(MongoError, number=361):
    """Collection uuidmismatch."""


class TemporarilyUnavailable(MongoError, number=365):
    """Temporarily unavailable."""


class UserWritesBlocked(MongoError, number=371):
    """User writes blocked."""


class NonConformantBSON(MongoError, number=378):
    """Non conformant bson."""


class ReauthenticationRequired(MongoError, number=391):
    """Reauthentication required."""


class ResourceExhausted(MongoError, number=402):
    """Resource exhausted."""


class CannotInsertTimeseriesBucketsWithMixedSchema(MongoError, number=408):
    """Cannot insert timeseries buckets with mixed schema."""


class TimeseriesBucketCompressionFailed(MongoError, number=409):
    """Timeseries bucket compression failed."""


class TimeseriesBucketFrozen(MongoError, number=410):
    """Timeseries bucket frozen."""


class QueryRejectedBySettings(MongoError, number=411):
    """Query rejected by settings."""


class AdmissionQueueOverflow(MongoError, number=433):
    """Admission queue overflow."""


class RateLimitExceeded(MongoError, number=449):
    """Rate limit exceeded."""


class IngressRequestRateLimitExceeded(MongoError, number=462):
    """Ingress request rate limit exceeded."""


class SocketException(MongoError, number=9001):
    """Socket exception."""


class CannotGrowDocumentInCappedNamespace(MongoError, number=10003):
    """Cannot grow document in capped namespace."""


class LegacyNotPrimary(MongoError, number=10058):
    """Legacy not primary."""


class NotWritablePrimary(MongoError, number=10107):
    """Not writable primary."""


class BSONObjectTooLarge(MongoError, number=10334):
    """A document larger than 16 MiB."""


class DuplicateKey(MongoError, number=11000):
    """A unique index already holds the key."""


class InterruptedAtShutdown(MongoError, number=11600):
    """Interrupted at shutdown."""


class Interrupted(MongoError, number=11601):
    """Interrupted."""


class InterruptedDueToReplStateChange(MongoError, number=11602):
    """Interrupted due to repl state change."""


class BackgroundOperationInProgressForDatabase(MongoError, number=12586):
    """Background operation in progress for database."""


class BackgroundOperationInProgressForNamespace(MongoError, number=12587):
    """Background operation in progress for namespace."""


class MergeStageNoMatchingDocument(MongoError, number=13113):
    """Merge stage no matching document."""


class DatabaseDifferCase(MongoError, number=13297):
    """Database differ case."""


class StaleConfig(MongoError, number=13388):
    """Stale config."""


class NotPrimaryNoSecondaryOk(MongoError, number=13435):
    """Not primary no secondary ok."""


class NotPrimaryOrSecondary(MongoError, number=13436):
    """Not primary or secondary."""


class OutOfDiskSpace(MongoError, number=14031):
    """The disk or the map of the store is full."""


class SearchNotEnabled(MongoError, number=31082):
    """Search not enabled."""


class IDLDuplicateField(MongoError, number=40413):
    """A field stands twice in a command."""


class IDLFailedToParse(MongoError, number=40414):
    """A required field is missing."""


class IDLUnknownField(MongoError, number=40415):
    """A field that the command does not know."""


class ClientMarkedKilled(MongoError, number=46841):
    """Client marked killed."""


class NotARetryableWriteCommand(MongoError, number=50768):
    """Not aretryable write command."""
