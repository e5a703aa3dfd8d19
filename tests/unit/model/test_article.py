"""Registered articles as they are stored, of which a part is read when it is first asked for."""

from __future__ import annotations

import json
import pickle

from support.registered import unused_fields
from tranrepl.model.article import PublishedColumn, RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article

_SETTINGS = Article(source=TableName("public", "t"))
_COLUMN = PublishedColumn(name="id", ordinal=1, type_oid=23, type_modifier=-1, type_name="integer", key_ordinal=1)
_WHOLE = RegisteredArticle(
    article_id=1,
    source=_SETTINGS.source,
    destination=_SETTINGS.source,
    source_object_id=1,
    columns=(_COLUMN,),
    ins_cmd=_SETTINGS.ins_cmd,
    upd_cmd=_SETTINGS.upd_cmd,
    del_cmd=_SETTINGS.del_cmd,
    **unused_fields(_SETTINGS.source),
)
_PARTS = ("columns", "source_file", "source_definition", "file_names")


def _stored() -> RegisteredArticle:
    document = json.loads(_WHOLE.model_dump_json())
    fields = {name: value for name, value in _WHOLE if name not in _PARTS}
    return RegisteredArticle.stored({name: json.dumps(document[name]) for name in _PARTS}, fields)


def _arrived(article: RegisteredArticle) -> RegisteredArticle:
    arrived: RegisteredArticle = pickle.loads(pickle.dumps(article))  # noqa: S301 — our own
    return arrived


def test_a_stored_article_is_the_same_one() -> None:
    assert _stored() == _WHOLE
    assert _stored().columns == (_COLUMN,)
    assert _stored().model_dump() == _WHOLE.model_dump()
    assert _stored().model_dump_json() == _WHOLE.model_dump_json()
    assert _stored().same_definition(_WHOLE)


def test_an_article_travels_as_it_is_by_then() -> None:
    for article in (_WHOLE, _stored()):
        assert article.key_positions == (0,)
        assert article.model_copy(update={"columns": ()}).key_positions == ()
        renamed = article.model_copy(update={"columns": (_COLUMN.model_copy(update={"name": "number"}),)})
        assert renamed != article
        for it in (article, renamed, renamed.model_copy(update={"article_id": 2})):
            arrived = _arrived(it)
            assert arrived == it
            assert arrived.model_dump_json() == it.model_dump_json()


def test_a_copy_is_compared_without_reading_what_it_has_from_the_first() -> None:
    article = _stored()
    assert article.model_copy() == article
    assert article.model_copy(update={"article_id": 2}) != article
    assert not set(_PARTS) & vars(article).keys()


def test_what_is_asked_for_alone_is_read() -> None:
    arrived = _arrived(_stored())
    assert arrived.columns == (_COLUMN,)
    assert not {"source_definition", "file_names"} & vars(arrived).keys()
