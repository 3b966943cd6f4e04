import pytest
@pytest.mark.parametrize("net,n",[("fcn5",2),("tiny_gpt",3),("tiny_gpt",2)])
@pytest.mark.parametrize("precision",["fp32","bf16"])
@pytest.mark.parametrize("s",["tensor","pipeline_gpipe","pipeline_1f1b","fsdp"])
def test_it(verdict,s,net,n,precision):
    net={"fcn5":"tiny_fcn"}.get(net,net)
    f=verdict("pytorch",net,devices=n,ranks=n,strategy=s,precision=precision)
    print(f)
    assert f.verdict in("same","unsupported"), f
    print("RESULT",s,net,n,f.verdict,f.reason,f.gradient_error)
