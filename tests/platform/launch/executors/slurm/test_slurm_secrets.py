"""Files of a job with the store's password are its owner's alone, for as long as nobody has read them."""


def test_what_a_job_reads_is_its_owners_alone_and_is_removed_when_it_has(slurm_harness, slurm, tmp_path):
    job = slurm_harness.job("jestlab-0a1b2c3d-1")
    launched = slurm_harness.executor().launch(job)
    [secret] = (tmp_path / "lab" / "slurm").glob("*/0.sh")
    assert "correct-horse" in secret.read_text()
    assert secret.stat().st_mode & 0o077 == 0
    assert secret.parent.stat().st_mode & 0o077 == 0
    slurm_harness.run(launched)
    files = [file for file in (tmp_path / "lab" / "slurm").rglob("*") if file.is_file()]
    assert files
    for word in ("correct-horse", job.marks.token):
        assert not [file for file in files if word in file.read_text()]
    assert job.marks.token not in slurm_harness.shown()
