from PIL import Image
from pathlib import Path
d=Path("/tmp/looked/site"); 
def sheet(files,out,cols,w):
    ims=[Image.open(d/f).convert("RGB") for f in files]; ims=[i.resize((w,int(i.height*w/i.width))) for i in ims]; h=max(i.height for i in ims); rows=(len(ims)+cols-1)//cols
    s=Image.new("RGB",(cols*(w+6),rows*(h+6)),"red")
    for n,i in enumerate(ims): s.paste(i,((n%cols)*(w+6),(n//cols)*(h+6)))
    s.save(f"/tmp/looked/sheets/{out}.png")
for n in ("front","module","figure","gallery","claims","api","search","teaching","explore","paper"):
    sheet([f"{n}_light_390.png"]+[f"{n}_light_390_{k}.png" for k in range(1,5)],f"p_{n}",5,390)
    sheet([f"{n}_light_1280.png"]+[f"{n}_light_1280_{k}.png" for k in range(1,4)],f"d_{n}",2,900)
    sheet([f"{n}_dark_1280.png"]+[f"{n}_dark_1280_{k}.png" for k in range(1,4)],f"k_{n}",2,900)
