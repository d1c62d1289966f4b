"""NVIDIA's own AIStore client against a cluster: lists, stats, reads and batches objects that it is told about, and reports what it got.

usage: ais_client.py ENDPOINT < plan.json > report.json

The plan names the buckets and what to ask of them; the report says what the client saw. Whoever runs this compares. With "put" true the
script makes the buckets and uploads the objects first, as a real cluster needs it, and destroys the buckets at the end.
"""

import hashlib
import json
import os
import sys

import xxhash
from aistore.sdk import Client
from aistore.sdk.archive_config import ArchiveConfig
from aistore.sdk.errors import AISError
from aistore.sdk.list_object_flag import ListObjectFlag

TIMEOUT = (5.0, 30.0)


def digest(data):
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def failure(call):
    """Status and class of the error that a call ends with."""
    try:
        call()
    except AISError as error:
        return {"status": error.status_code, "error": type(error).__name__}
    return {"status": 200, "error": None}


def upload(client, plan):
    for wanted in plan["buckets"]:
        bucket = client.bucket(wanted["name"], provider=wanted["provider"])
        bucket.create(exist_ok=True)
        for key, body in wanted["objects"].items():
            bucket.object(key).get_writer().put_content(bytes.fromhex(body))


def entries(found):
    return [{"name": e.n, "size": e.s, "flags": e.f} for e in found]


def listings(bucket, page_size):
    report = {
        "all": entries(bucket.list_all_objects(props="name,size,checksum,version", page_size=page_size)),
        "folders": entries(bucket.list_all_objects(props="name,size", page_size=page_size, flags=[ListObjectFlag.NO_RECURSION])),
    }
    pages, page = [], None
    while page is None or page.continuation_token:
        token, uuid = (page.continuation_token, page.uuid) if page else ("", "")
        page = bucket.list_objects(props="name,size", page_size=page_size, continuation_token=token, uuid=uuid)
        pages.append(len(page.entries))
    report["pages"] = pages
    return report


def attributes(found):
    return {
        "size": found.size,
        "checksum": [found.checksum_type, found.checksum_value],
        "version": found.obj_version,
        "last_modified": found.last_modified,
        "etag": found.etag,
    }


def objects(bucket, keys):
    report = {}
    for key in keys:
        thing = bucket.object(key)
        reader = thing.get_reader()
        data = reader.read_all()
        assert reader.raw().read() == data
        report[key] = {
            **digest(data),
            "xxh64": xxhash.xxh64(data, seed=0).hexdigest(),
            # what came with the GET
            "get": attributes(reader.attributes),
            "head": attributes(thing.head(props="name,size,checksum,version,custom,last-modified,etag")),
            "direct": digest(thing.get_reader(direct=True).read_all()),
        }
        if len(data) > 4:
            report[key]["range"] = digest(thing.get_reader(byte_range="bytes=1-3").read_all())
            report[key]["tail"] = digest(thing.get_reader(byte_range=f"bytes={len(data) - 1}-").read_all())
    return report


def batches(client, bucket, wanted):
    report = {}
    for streaming in (True, False):
        batch = client.batch(bucket=bucket, streaming_get=streaming, only_obj_name=wanted["only_obj_name"])
        for entry in wanted["entries"]:
            batch.add(
                entry["objname"],
                archpath=entry.get("archpath"),
                start=entry.get("start"),
                length=entry.get("length"),
                opaque=entry["opaque"].encode() if "opaque" in entry else None,
            )
        got = [
            {"objname": out.obj_name, "archpath": out.archpath or "", "missing": bool(out.err_msg), **digest(data)}
            for out, data in batch.get()
        ]
        report["streamed" if streaming else "buffered"] = got
    return report


def main():
    plan = json.load(sys.stdin)
    client = Client(sys.argv[1], timeout=TIMEOUT, token=os.environ.get("AIS_AUTHN_TOKEN"))
    if plan.get("put"):
        upload(client, plan)
    report = {"buckets": {}}
    if "ping" in plan:
        report["ping"] = failure(client.cluster().get_info)
    if "unames" in plan:
        smap = client.cluster().get_info()
        report["targets"] = sorted(smap.tmap)
        report["choices"] = {uname: smap.get_target_for_object(uname).daemon_id for uname in plan["unames"]}
    for wanted in plan.get("reads", []):
        thing = client.bucket(wanted["bucket"], provider=wanted["provider"]).object(wanted["key"])
        report.setdefault("reads", []).append(
            {
                "redirected": digest(thing.get_reader().read_all()),
                "direct": failure(lambda: thing.get_reader(direct=True).read_all()),
            }
        )
    for wanted in plan.get("buckets", []):
        bucket = client.bucket(wanted["name"], provider=wanted["provider"])
        found = {"list": listings(bucket, wanted["page_size"]), "objects": objects(bucket, wanted["keys"])}
        found["listed"] = sorted(other.name for other in client.cluster().list_buckets(provider=wanted["provider"]))
        found["provider"] = json.loads(bucket.head()["ais-bucket-props"])["provider"]
        found["missing"] = failure(lambda: bucket.object("no/such/object").get_reader().read_all())
        found["missing_head"] = failure(lambda: bucket.object("no/such/object").head())
        found["beyond"] = failure(lambda: bucket.object(wanted["keys"][0]).get_reader(byte_range="bytes=99999999-").read_all())
        found["members"] = {
            f"{shard}|{member}": digest(bucket.object(shard).get_reader(archive_config=ArchiveConfig(archpath=member)).read_all())
            for shard, member in wanted["members"]
        }
        found["batch"] = batches(client, bucket, wanted["batch"])
        if "prefetch" in wanted:
            found["job"] = bucket.objects(obj_names=wanted["prefetch"]).prefetch()
        report["buckets"][wanted["name"]] = found
        report["no_bucket"] = failure(lambda: client.bucket("no-such-bucket").list_all_objects())
    if plan.get("put"):
        for wanted in plan["buckets"]:
            client.bucket(wanted["name"], provider=wanted["provider"]).delete()
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
