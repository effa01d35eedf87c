from tests.notebooks.prose.recorded import record, rows


def numbers():
    return {"less far, to 17.1 dB": rows(record("mfcl/table8", "workstation"), part="views", attack="C1D0").psnr.mean()}
