import clustercaps as cc


def test_public_names() -> None:
    assert cc.__all__ == [
        "ClusterCapsules2d",
        "RoutingTrace",
        "create_model",
        "create_routing",
        "data",
        "from_pretrained",
        "functional",
        "list_models",
        "list_routings",
        "memory_estimate",
        "testing",
    ]
    for name in cc.__all__:
        assert getattr(cc, name) is not None
        assert name in dir(cc)
    for name in cc.functional.__all__:
        assert callable(getattr(cc.functional, name)), name


def test_unknown_names_are_attribute_errors() -> None:
    assert not hasattr(cc, "nonsense")
