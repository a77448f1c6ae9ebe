"""pandas, pyarrow, zarr and xarray read and write files of a cluster by their paths alone."""

import os

import fsspec
import numpy
import pandas
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest
import xarray
import zarr
from eyas.fs import EyasFileSystem
from files_cluster import files_cluster

TABLE = pandas.DataFrame({"star": range(50_000), "magnitude": numpy.linspace(-1.5, 6.0, 50_000)})


@pytest.fixture(scope="module", autouse=True)
def cluster():
    if "eyas" not in fsspec.available_protocols():
        fsspec.register_implementation("eyas", EyasFileSystem)
    with files_cluster(nodes=1) as access:
        os.environ["EYAS_ACCESS"] = str(access)
        EyasFileSystem.clear_instance_cache()
        yield
        EyasFileSystem.clear_instance_cache()
        del os.environ["EYAS_ACCESS"]


@pytest.mark.parametrize(
    "name", ["t.csv", "t.csv.gz", "t.parquet", "t.feather", "t.json", "t.pickle"]
)
def test_pandas(name):
    path, kind = f"eyas:///pandas/{name}", name.split(".")[1]
    options = {"index": False} if kind == "csv" else {}
    getattr(TABLE, f"to_{kind}")(path, **options)
    pandas.testing.assert_frame_equal(
        getattr(pandas, f"read_{kind}")(path), TABLE, check_exact=False
    )


def test_pyarrow():
    fs = fsspec.filesystem("eyas")
    table = pyarrow.Table.from_pandas(TABLE.assign(part=TABLE.star % 3))
    pyarrow.parquet.write_table(table, "/arrow/table.parquet", filesystem=fs)
    with fs.open("/arrow/table.parquet") as file:
        assert pyarrow.parquet.ParquetFile(file).read(["star"]).equals(table.select(["star"]))
    pyarrow.dataset.write_dataset(
        table, "/arrow/set", format="parquet", partitioning=["part"], filesystem=fs
    )
    found = pyarrow.dataset.dataset(
        "/arrow/set", format="parquet", partitioning=["part"], filesystem=fs
    )
    assert (
        found.count_rows(filter=pyarrow.dataset.field("part") == 1) == (TABLE.star % 3 == 1).sum()
    )
    assert found.to_table().sort_by("star")["star"].equals(table["star"])


def test_numpy():
    values = numpy.arange(2_000_000.0).reshape(1000, 2000)
    with fsspec.open("eyas:///numpy/values.npy", "wb") as file:
        numpy.save(file, values)
    with fsspec.open("eyas:///numpy/both.npz", "wb") as file:
        numpy.savez(file, one=values, two=-values)
    with fsspec.open("eyas:///numpy/values.npy") as file:
        assert (numpy.load(file) == values).all()
    with fsspec.open("eyas:///numpy/both.npz") as file:
        assert (numpy.load(file)["two"] == -values).all()


def test_zarr():
    values = numpy.arange(1_000_000).reshape(1000, 1000)
    array = zarr.create_array(
        "eyas:///zarr/values.zarr", shape=values.shape, chunks=(250, 250), dtype=values.dtype
    )
    array[:] = values
    array[3, :] = 7
    values[3, :] = 7
    again = zarr.open_array("eyas:///zarr/values.zarr", mode="r")
    assert (again[:] == values).all() and (again[100:700:7, 5] == values[100:700:7, 5]).all()
    zarr.create_array("eyas:///zarr/values.zarr", shape=(2,), dtype="i4", overwrite=True)
    assert zarr.open_array("eyas:///zarr/values.zarr").shape == (2,)


def test_xarray():
    sky = xarray.Dataset(
        {"brightness": (("x", "y"), numpy.random.default_rng(1).random((300, 200)))},
        coords={"x": numpy.arange(300)},
    )
    sky.to_zarr("eyas:///xarray/sky.zarr")
    xarray.testing.assert_identical(
        xarray.open_zarr("eyas:///xarray/sky.zarr", chunks=None).load(), sky
    )
    sky.assign_coords(x=sky.x + 300).to_zarr("eyas:///xarray/sky.zarr", append_dim="x")
    assert xarray.open_zarr("eyas:///xarray/sky.zarr", chunks=None).sizes["x"] == 600
