"""Whether a new index can stand beside those that a collection has."""

from ..common.display import value_text
from ..common.errors import IndexKeySpecsConflict, IndexOptionsConflict
from .collections import Collection
from .index_specs import IndexSpec


def is_new_index(collection: Collection, spec: IndexSpec) -> bool:
    """Whether an index has to be made; False where the same one exists.

    Raises:
        IndexOptionsConflict: 85, the same key with another name or other options.
        IndexKeySpecsConflict: 86, the same name with another key or other options.
    """
    if spec.is_id and (collection.clustered or any(index.is_id for index in collection.indexes)):
        return False
    for index in collection.indexes:
        same = index.name == spec.name and index.same_key(spec) and index.same_options(spec)
        if spec.kind == index.kind == "text" and not same:
            raise IndexOptionsConflict(
                f'Only one text index per collection allowed, found existing text index "{index.name}"'
            )
        same_key, same_options = index.same_key(spec), index.same_options(spec)
        told = f"Requested index: {value_text(spec.document)}, existing index: {value_text(index.document)}"
        if index.name == spec.name:
            if not same_key:
                raise IndexKeySpecsConflict(
                    "An existing index has the same name as the requested index. When index names are not specified, "
                    f"they are auto generated and can cause conflicts. Please refer to our documentation. {told}"
                )
            if not same_options:
                raise IndexOptionsConflict(
                    f"An equivalent index already exists with the same name but different options. {told}"
                )
            return False
        if same_key and same_options:
            raise IndexOptionsConflict(f"Index already exists with a different name: {index.name}")
        if same_key:
            raise IndexOptionsConflict(f"An equivalent index already exists with a different name and options. {told}")
    return True
