def test_smoke(shard):
    shard.push_all(("a", b"1"), ("b", b"1"), ("c", b"1"))
    lease = shard.lease()
    assert [j.id for j in lease.claim(limit=1)] == ["a"]
    shard.push("a", b"2")
    assert [j.id for j in lease.claim_beside(limit=1)] == ["b"]
    assert [j.id for j in lease.claim_beside()] == ["c"]
    print(shard.queued(), shard.claims())
    assert shard.queued()["a"].waits
    shard.push("a", b"3")
    assert lease.claim_beside() == []
    lease.settle(1, rest="ack", has_several=False)
    assert not shard.queued()["a"].waits
    (job,) = lease.claim_beside()
    assert job.payloads == [b"2", b"3"]
    lease.settle(2, rest="ack", has_several=False)
    lease.settle(3, rest="ack", has_several=False)
    lease.settle(5, rest="ack", has_several=True)
    assert shard.names() == {"meta", "owner"}, shard.names()
    lease.release()
