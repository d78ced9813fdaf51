from gssc.report.provenance import public_command


def test_folders_of_a_machine_are_left_out():
    given = "gssc train '/home/ann/my recipes/mine.yaml' --data '/home/ann/my rings.pt' --out '/home/ann/My Drive/x'"
    assert public_command(f"{given} --seeds 0-1") == "gssc train mine.yaml --data 'my rings.pt' --seeds 0-1"
