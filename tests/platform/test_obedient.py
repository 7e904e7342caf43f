"""The job with which the contract tests of executors are run: it does as files say, once they are written."""

from concurrent.futures import ThreadPoolExecutor, wait

from jestlab.platform.contracts.obedient import obey


def test_a_code_that_is_being_written_is_waited_for(tmp_path):
    code = tmp_path / "job.code"
    code.touch()  # whoever writes it has opened it
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(obey, tmp_path, "job")
        assert not wait([ended], timeout=0.2).done
        code.write_text("3")
        assert ended.result(timeout=60) == 3
